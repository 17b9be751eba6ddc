# @summary An absolute path.
type Proscenium::Path = Pattern[/\A\/[^\0\n]*\z/]
