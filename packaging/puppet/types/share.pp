# @summary A share, such as `25%`.
type Proscenium::Share = Pattern[/\A\d+%\z/]
