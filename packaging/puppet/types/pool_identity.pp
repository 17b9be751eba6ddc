# @summary `[pools.NAME.identity]`: identity headers of one pool.
type Proscenium::Pool_identity = Struct[{
  Optional['headers']       => Array[Enum['puppet', 'client-cert', 'client-cert-chain', 'xfcc'], 1],
  Optional['dn_format']     => Enum['rfc2253', 'openssl', 'cn-last'],
  Optional['dn_header']     => Variant[String[1], Array[String[1], 1]],
  Optional['verify_header'] => String[1],
  Optional['cert_header']   => String[1],
  Optional['cert_format']   => Enum['escaped', 'one-line'],
}]
