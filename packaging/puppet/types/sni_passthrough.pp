# @summary `[[listeners.NAME.sni_passthrough]]`: connections that are passed through by server name.
type Proscenium::Sni_passthrough = Struct[{
  'server_names' => Array[String[1]],
  'pool'         => String[1],
}]
