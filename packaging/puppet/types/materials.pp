# @summary `[materials]`: how the proxy notices changed files.
type Proscenium::Materials = Struct[{
  Optional['watch']      => Enum['notify', 'poll', 'off'],
  Optional['interval']   => Proscenium::Duration,
  Optional['settle']     => Proscenium::Duration,
  Optional['settle_max'] => Proscenium::Duration,
}]
