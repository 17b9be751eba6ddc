# @summary The name of a listener or a pool.
type Proscenium::Name = Pattern[/\A[A-Za-z0-9_-]+\z/]
