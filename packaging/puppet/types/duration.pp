# @summary A duration, such as `60s`.
type Proscenium::Duration = Pattern[/\A\d+(ms|s|m|h|d)\z/]
