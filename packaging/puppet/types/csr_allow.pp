# @summary `[[csr.allow]]`: exemptions for some names.
type Proscenium::Csr_allow = Struct[{
  'certname'   => Array[String[1]],
  'skip_rules' => Array[Enum['key', 'signature', 'authorization', 'altnames', 'extensions'], 1],
}]
