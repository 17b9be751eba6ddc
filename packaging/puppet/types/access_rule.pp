# @summary `[[access]]`: a rule about requests.
type Proscenium::Access_rule = Struct[{
  'name'                => String[1],
  'action'              => Enum['allow', 'refuse'],
  Optional['certname']  => Array[String[1], 1],
  Optional['extension'] => Hash[String[1], String],
  Optional['issuer']    => Array[String[1], 1],
  Optional['source']    => Array[String[1], 1],
  Optional['route']     => Array[String[1], 1],
  Optional['class']     => Array[Variant[Proscenium::Endpoint_class, Enum['unknown']], 1],
  Optional['observe']   => Boolean,
}]
