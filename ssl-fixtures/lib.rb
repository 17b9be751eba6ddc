# What the scripts beside this file share: how certificates and CRLs are put together that a Puppet CA does not make.
require "openssl"

DIR = ARGV.fetch(0)
SSL = OpenSSL::X509
BEGIN_ = Time.utc(2026, 11, 20, 3)
END_ = Time.utc(2041, 11, 1)
PAST = [Time.utc(2023, 11, 22), Time.utc(2026, 11, 20)].freeze
FUTURE = [Time.utc(2040, 1, 1), Time.utc(2041, 1, 1)].freeze

# What Puppet 3 to 5 put into an agent's certificate and into a CA's.
AGENT = {
  "nsComment" => ["Puppet Ruby/OpenSSL Internal Certificate"],
  "authorityKeyIdentifier" => ["keyid:always"],
  "extendedKeyUsage" => ["serverAuth,clientAuth", true],
  "basicConstraints" => ["CA:FALSE", true],
  "keyUsage" => ["keyEncipherment,digitalSignature", true],
  "subjectKeyIdentifier" => ["hash"],
}.freeze
AUTHORITY = {
  "nsComment" => ["Puppet Ruby/OpenSSL Internal Certificate"],
  "keyUsage" => ["cRLSign,keyCertSign", true],
  "basicConstraints" => ["CA:TRUE", true],
  "subjectKeyIdentifier" => ["hash"],
}.freeze

def name(*rdns) = SSL::Name.new(rdns)
def cn(text) = name(["CN", text])
def write(file, *things) = File.write(File.join(DIR, file), things.map(&:to_pem).join)
def read(file) = File.read(File.join(DIR, file))

# A certificate authority: certificate and key.
Authority = Struct.new(:cert, :key) do
  def self.make(subject, bits, digest = "SHA256")
    key = OpenSSL::PKey::RSA.new(bits)
    cert = certificate(subject, key, nil, key, 1, [BEGIN_, END_], AUTHORITY, digest)
    new(cert, key)
  end
end

def certificate(subject, key, issuer, issuer_key, serial, times, extensions, digest = "SHA256")
  cert = SSL::Certificate.new
  cert.version = 2
  cert.serial = serial
  cert.subject = subject
  cert.issuer = issuer ? issuer.subject : subject
  cert.not_before, cert.not_after = times
  cert.public_key = key
  factory = SSL::ExtensionFactory.new
  factory.subject_certificate = cert
  factory.issuer_certificate = issuer || cert
  extensions.each { |kind, (value, critical)| cert.add_extension(factory.create_extension(kind, value, critical || false)) }
  yield cert if block_given?
  cert.sign(issuer_key, OpenSSL::Digest.new(digest))
end

def crl(authority, number, revoked, times, version: 1, key_identifier: true, digest: "SHA256")
  list = SSL::CRL.new
  list.version = version
  list.issuer = authority.cert.subject
  list.last_update, list.next_update = times
  if version == 1
    factory = SSL::ExtensionFactory.new
    factory.issuer_certificate = authority.cert
    list.add_extension(factory.create_extension("authorityKeyIdentifier", "keyid:always")) if key_identifier
    list.add_extension(SSL::Extension.new("crlNumber", OpenSSL::ASN1::Integer(number)))
  end
  revoked.each do |serial|
    entry = SSL::Revoked.new
    entry.serial = serial
    entry.time = times.first
    entry.add_extension(SSL::Extension.new("CRLReason", OpenSSL::ASN1::Enumerated(1)))
    list.add_revoked(entry)
  end
  list.sign(authority.key, OpenSSL::Digest.new(digest))
end
