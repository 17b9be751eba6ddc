# @summary `routes.path`: exactly one of these keys.
type Proscenium::Route_path = Variant[
  Struct[{ 'prefix' => String[1] }],
  Struct[{ 'exact' => String[1] }],
  Struct[{ 'regex' => String[1] }],
]
