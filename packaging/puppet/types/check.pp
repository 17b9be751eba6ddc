# @summary `[pools.NAME.check]`: the health check.
type Proscenium::Check = Struct[{
  Optional['type']          => Enum['http', 'legacy', 'tcp', 'none'],
  Optional['port']          => Proscenium::Port,
  Optional['tls']           => Boolean,
  Optional['path']          => String[1],
  Optional['expect_status'] => Array[String[1], 1],
  Optional['expect_body']   => String,
  Optional['interval']      => Proscenium::Duration,
  Optional['fast_interval'] => Proscenium::Duration,
  Optional['timeout']       => Proscenium::Duration,
  Optional['rise']          => Integer[1],
  Optional['fall']          => Integer[1],
  Optional['assume_up']     => Boolean,
  Optional['read_jrubies']  => Boolean,
}]
