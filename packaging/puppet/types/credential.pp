# @summary `[[tls.certificates]]`: a certificate and its key.
type Proscenium::Credential = Struct[{
  'chain' => Proscenium::Path,
  'key'   => Proscenium::Path,
}]
