# @summary One or more CRLs in PEM.
type Proscenium::Pem_crl = Pattern[/\A\s*(-----BEGIN X509 CRL-----\n[A-Za-z0-9+\/=\n]+-----END X509 CRL-----\s*)+\z/]
