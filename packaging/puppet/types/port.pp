# @summary A TCP port.
type Proscenium::Port = Integer[1, 65535]
