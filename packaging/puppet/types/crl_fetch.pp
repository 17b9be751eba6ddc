# @summary `[trust.fetch]`: how the proxy fetches CRLs from the CA.
type Proscenium::Crl_fetch = Struct[{
  Optional['enabled']       => Boolean,
  Optional['interval']      => Proscenium::Duration,
  Optional['jitter']        => Proscenium::Duration,
  Optional['timeout']       => Proscenium::Duration,
  Optional['full_interval'] => Proscenium::Duration,
  Optional['body_max']      => Proscenium::Size,
}]
