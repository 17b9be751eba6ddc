# @summary `[upstream.tls]` and `[pools.NAME.tls]`: TLS to members.
type Proscenium::Member_tls = Struct[{
  Optional['chain']        => Proscenium::Path,
  Optional['key']          => Proscenium::Path,
  Optional['ca']           => Variant[Proscenium::Path, Array[Proscenium::Path, 1]],
  Optional['crl']          => Variant[Proscenium::Path, Array[Proscenium::Path, 1]],
  Optional['name_from_cn'] => Boolean,
}]
