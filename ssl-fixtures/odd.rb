# Certificates and CRLs that a Puppet CA does not make: of wrong times, purposes, subjects, keys and issuers.
# Times are fixed, so that a file says the same whenever it is made: good ones hold until November 2041.
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
  def self.make(subject, bits)
    key = OpenSSL::PKey::RSA.new(bits)
    cert = certificate(subject, key, nil, key, 1, [BEGIN_, END_], AUTHORITY)
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

def crl(authority, number, revoked, times, version: 1, key_identifier: true)
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
  list.sign(authority.key, OpenSSL::Digest.new("SHA256"))
end

INTERMEDIATE = Authority.new(SSL::Certificate.new(read("intermediate.pem")), OpenSSL::PKey.read(read("intermediate.key")))
KEY = OpenSSL::PKey::RSA.new(2048)
@serial = 9000

# Writes FILE.pem and FILE.key; a block may change the certificate before it is signed.
def odd(file, subject: cn("#{file}.lab.test"), times: [BEGIN_, END_], extensions: AGENT, digest: "SHA256", key: KEY, ca: INTERMEDIATE, &change)
  @serial += 1
  cert = certificate(subject, key, ca.cert, ca.key, @serial, times, extensions, digest, &change)
  write("#{file}.pem", cert)
  write("#{file}.key", key)
  cert
end

odd "expired", times: PAST
odd "future", times: FUTURE
odd "no-eku", extensions: AGENT.reject { |kind, _| kind == "extendedKeyUsage" }
odd "server-only", extensions: AGENT.merge("extendedKeyUsage" => ["serverAuth", true])
odd "sha1", digest: "SHA1"
odd "rsa1024", key: OpenSSL::PKey::RSA.new(1024)
odd "two-cn", subject: name(["CN", "ca.lab.test"], ["CN", "two-cn.lab.test"])
odd "slash-cn", subject: name(["O", "x/CN=ca.lab.test"], ["CN", "slash-cn.lab.test"])
odd "comma-cn", subject: cn("a,CN=ca.lab.test")
odd "utf8-cn", subject: cn("ürgent.lab.test")
odd "upper-cn", subject: cn("UPPER.lab.test")
odd "org-cn", subject: name(["O", "Example"], ["CN", "org-cn.lab.test"])
odd "no-cn", subject: name(["O", "nobody"])
names = (1..200).map { |i| "DNS:alternative-name-#{i}.lab.test" }.join(",")
odd "many-altnames", extensions: AGENT.merge("subjectAltName" => [names])
odd "critical-unknown" do |cert|
  cert.add_extension(SSL::Extension.new("1.3.6.1.4.1.34380.1.1.13", OpenSSL::ASN1::UTF8String("web").to_der, true))
end

# Two CAs that are not this one: of another name, and of the same name with another key.
foreign = Authority.make(cn("Puppet CA: elsewhere"), 2048)
write("foreign-ca.pem", foreign.cert)
odd "foreign", subject: cn("agent.lab.test"), ca: foreign
impostor = Authority.make(INTERMEDIATE.cert.subject, 2048)
write("impostor-ca.pem", impostor.cert)
odd "impostor", subject: cn("agent.lab.test"), ca: impostor

# One self-signed CA, as Puppet 3 to 5 make it.
old = Authority.make(cn("Puppet CA: puppet.lab.test"), 4096)
write("puppet5-ca.pem", old.cert)
agent = odd "puppet5-agent", ca: old
odd "puppet5-server", subject: cn("puppet.lab.test"), ca: old, extensions: AGENT.merge("subjectAltName" => ["DNS:puppet, DNS:puppet.lab.test"])
write("puppet5-crl.pem", crl(old, 0, [], [BEGIN_, END_]))
write("puppet5-crl-revoked.pem", crl(old, 1, [agent.serial], [BEGIN_, END_]))
write("puppet5-crl-no-aki.pem", crl(old, 0, [], [BEGIN_, END_], key_identifier: false))
write("puppet5-crl-expired.pem", crl(old, 0, [], PAST))
write("puppet5-crl-v1.pem", crl(old, 0, [], [BEGIN_, END_], version: 0))

# The root's list alone, and beside it the intermediate's with a broken promise.
root_list = read("crl-before.pem").scan(/-----BEGIN X509 CRL-----.*?-----END X509 CRL-----\n/m).fetch(1)
File.write(File.join(DIR, "crl-root.pem"), root_list)
File.write(File.join(DIR, "crl-expired.pem"), crl(INTERMEDIATE, 99, [], PAST).to_pem + root_list)
