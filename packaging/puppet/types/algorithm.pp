# @summary How a pool picks a member.
type Proscenium::Algorithm = Enum[
  'least-load', 'least-connections', 'round-robin', 'random', 'source-hash', 'certname-hash', 'first',
]
