# @summary `[pools.NAME.ejection]`: members at which requests fail.
type Proscenium::Ejection = Struct[{
  Optional['enabled']              => Boolean,
  Optional['consecutive_failures'] => Integer[1],
  Optional['error_rate']           => Proscenium::Share,
  Optional['window']               => Proscenium::Duration,
  Optional['eject_time']           => Proscenium::Duration,
  Optional['eject_time_max']       => Proscenium::Duration,
  Optional['ejected_max']          => Proscenium::Share,
  Optional['panic_threshold']      => Proscenium::Share,
}]
