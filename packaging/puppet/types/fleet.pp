# @summary `[fleet]`: the etcd through which several proxies share drains and blocks. The parameter `fleet_key` writes its key file.
type Proscenium::Fleet = Struct[{
  'etcd'                      => Array[Pattern[/\Ahttps:\/\/[^\/\s]+:\d+\z/], 1],
  'site'                      => Pattern[/\A[A-Za-z0-9._-]{1,64}\z/],
  'key_file'                  => Proscenium::Path,
  Optional['certificate']     => Proscenium::Path,
  Optional['key']             => Proscenium::Path,
  Optional['ca']              => Variant[Proscenium::Path, Array[Proscenium::Path, 1]],
  Optional['prefix']          => Proscenium::Path,
  Optional['connect_timeout'] => Proscenium::Duration,
  Optional['request_timeout'] => Proscenium::Duration,
  Optional['keepalive']       => Proscenium::Duration,
  Optional['lease']           => Proscenium::Duration,
  Optional['ready_after']     => Proscenium::Duration,
}]
