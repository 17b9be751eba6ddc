# @summary `[tls]`: certificates that the proxy presents to clients.
type Proscenium::Tls = Struct[{
  Optional['certificates']     => Array[Proscenium::Credential],
  Optional['session_lifetime'] => Proscenium::Duration,
}]
