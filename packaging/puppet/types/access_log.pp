# @summary `[access_log]`: one line for each request.
type Proscenium::Access_log = Struct[{
  Optional['path']      => String[1],
  Optional['facility']  => Proscenium::Facility,
  Optional['format']    => String[1],
  Optional['queue_max'] => Integer[1],
}]
