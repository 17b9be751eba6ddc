# @summary Settings of Puppet Server's `webserver` that do not decide which clients can connect.
type Proscenium::Webserver = Struct[{
  Optional['access-log-config']         => Proscenium::Path,
  Optional['acceptor-threads']          => Integer[1],
  Optional['cipher-suites']             => Array[String[1]],
  Optional['gzip-enable']               => Boolean,
  Optional['idle-timeout-milliseconds'] => Integer[1],
  Optional['max-threads']               => Integer[1],
  Optional['queue-max-size']            => Integer[1],
  Optional['request-body-max-size']     => Integer[1],
  Optional['request-header-max-size']   => Integer[1],
  Optional['selector-threads']          => Integer[1],
  Optional['ssl-acceptor-threads']      => Integer[1],
  Optional['ssl-protocols']             => Array[String[1]],
  Optional['ssl-selector-threads']      => Integer[1],
}]
