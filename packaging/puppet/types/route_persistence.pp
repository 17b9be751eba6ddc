# @summary `routes.persistence`: exactly one of these keys.
type Proscenium::Route_persistence = Variant[
  Struct[{ 'cookie' => String[1] }],
  Struct[{ 'header' => String[1] }],
  Struct[{ 'source' => Boolean }],
]
