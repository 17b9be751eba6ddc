# @summary `[state]`: data that survives a restart.
type Proscenium::State = Struct[{
  Optional['directory'] => Proscenium::Path,
}]
