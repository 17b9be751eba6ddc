# @summary `[dns]`: name servers for members.
type Proscenium::Dns = Struct[{
  Optional['servers'] => Array[String[1], 1],
  Optional['timeout'] => Proscenium::Duration,
  Optional['ttl_min'] => Proscenium::Duration,
  Optional['ttl_max'] => Proscenium::Duration,
}]
