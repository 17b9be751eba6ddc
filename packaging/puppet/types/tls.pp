# @summary `[tls]`: certificates that the proxy presents to clients.
type Proscenium::Tls = Struct[{
  Optional['certificates']     => Array[Proscenium::Credential],
  Optional['renew']            => Boolean,
  Optional['renew_before']     => Proscenium::Duration,
  Optional['session_lifetime'] => Proscenium::Duration,
}]
