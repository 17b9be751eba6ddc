# @summary `[[trust.issuers]]`: the policy for certificates of one issuer.
type Proscenium::Trust_issuer = Struct[{
  'name'                  => String[1],
  Optional['crl_expired'] => String[1],
  Optional['unchecked']   => Boolean,
  Optional['revocation']  => Enum['chain', 'leaf'],
}]
