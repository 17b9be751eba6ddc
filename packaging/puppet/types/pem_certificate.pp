# @summary One or more certificates in PEM.
type Proscenium::Pem_certificate = Pattern[
  /\A\s*(-----BEGIN CERTIFICATE-----\n[A-Za-z0-9+\/=\n]+-----END CERTIFICATE-----\s*)+\z/
]
