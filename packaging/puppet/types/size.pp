# @summary A size, such as `64KiB`.
type Proscenium::Size = Pattern[/\A\d+(B|KiB|MiB|GiB)\z/]
