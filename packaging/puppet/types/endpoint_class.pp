# @summary A class of endpoints.
type Proscenium::Endpoint_class = Enum[
  'enrolment', 'renewal', 'ca-administration', 'own-documents', 'files', 'filebucket', 'services', 'server-administration', 'status',
]
