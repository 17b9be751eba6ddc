# @summary `[trust]`: which CAs the proxy trusts, and how it checks for revocation.
type Proscenium::Trust = Struct[{
  Optional['ca']                 => Variant[Proscenium::Path, Array[Proscenium::Path, 1]],
  Optional['crl']                => Variant[Proscenium::Path, Array[Proscenium::Path, 1]],
  Optional['depth']              => Integer[0],
  Optional['fetch']              => Proscenium::Crl_fetch,
  Optional['unchecked']          => Array[String[1]],
  Optional['legacy_signatures']  => Array[String[1]],
  Optional['crl_expired']        => String[1],
  Optional['revocation']         => Enum['chain', 'leaf'],
  Optional['revoked_close_rate'] => Integer[1],
  Optional['chain_cache_max']    => Integer[0],
  Optional['issuers']            => Array[Proscenium::Trust_issuer],
}]
