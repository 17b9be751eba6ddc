# @summary A certname.
type Proscenium::Certname = Pattern[/\A[a-z0-9._-]+\z/]
