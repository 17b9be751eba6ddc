# Certificates and CRLs that a Puppet CA does not make: of wrong times, purposes, subjects, keys and issuers.
# Times are fixed, so that a file says the same whenever it is made: good ones hold until November 2041.
require_relative "lib"

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
