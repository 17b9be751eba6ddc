# @summary `[listeners.NAME.proxy_protocol]`: the PROXY protocol from load balancers.
type Proscenium::Proxy_protocol = Struct[{
  'from' => Array[String[1]],
}]
