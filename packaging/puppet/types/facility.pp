# @summary A facility of syslog.
type Proscenium::Facility = Enum[
  'user', 'daemon', 'auth', 'authpriv',
  'local0', 'local1', 'local2', 'local3', 'local4', 'local5', 'local6', 'local7',
]
