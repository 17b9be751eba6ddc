# @summary `[[pools.NAME.members]]`: one server.
type Proscenium::Member = Struct[{
  'address'               => String[1],
  Optional['addresses']   => Enum['all', 'first'],
  Optional['weight']      => Integer[1],
  Optional['max']         => Integer[1],
  Optional['jrubies']     => Integer[1],
  Optional['priority']    => Integer[0],
  Optional['server_name'] => String[1],
  Optional['backup']      => Boolean,
}]
