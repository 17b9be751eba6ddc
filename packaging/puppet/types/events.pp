# @summary `[events]`: what the proxy logs about itself.
type Proscenium::Events = Struct[{
  Optional['path']     => String[1],
  Optional['facility'] => Proscenium::Facility,
}]
