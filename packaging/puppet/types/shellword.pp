# @summary A word that a shell takes as it is.
type Proscenium::Shellword = Pattern[/\A[A-Za-z0-9_.,:=@\/+-]+\z/]
