# @summary `[csr]`: which certificate requests the proxy forwards.
type Proscenium::Csr = Struct[{
  Optional['observe']      => Boolean,
  Optional['keys']         => Array[Enum['rsa', 'ecdsa-p256', 'ecdsa-p384', 'ecdsa-p521', 'ed25519'], 1],
  Optional['rsa_bits_min'] => Integer[2048],
  Optional['allow']        => Array[Proscenium::Csr_allow],
}]
