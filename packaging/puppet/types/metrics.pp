# @summary `[metrics]`: a listener for metrics.
type Proscenium::Metrics = Struct[{
  Optional['address'] => String[1],
}]
