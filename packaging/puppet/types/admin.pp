# @summary `[admin]`: the socket for operators.
type Proscenium::Admin = Struct[{
  Optional['socket']        => String[1],
  Optional['read_group']    => String[1],
  Optional['operate_group'] => String[1],
  Optional['audit_log']     => Proscenium::Path,
}]
