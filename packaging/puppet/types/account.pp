# @summary The name of an account.
type Proscenium::Account = Pattern[/\A[a-z_][a-z0-9_-]*\z/]
