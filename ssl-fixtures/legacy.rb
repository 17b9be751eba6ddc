# CAs of another time: signatures with SHA-1, and a key of 1024 bits.
require_relative "lib"

@serial = 9500

# Writes FILE.pem and FILE.key, by `ca`.
def old(file, ca, digest: "SHA1", bits: 2048, extensions: AGENT)
  @serial += 1
  key = OpenSSL::PKey::RSA.new(bits)
  cert = certificate(cn("#{file}.lab.test"), key, ca.cert, ca.key, @serial, [BEGIN_, END_], extensions, digest)
  write("#{file}.pem", cert)
  write("#{file}.key", key)
  Authority.new(cert, key)
end

names = { "subjectAltName" => ["DNS:localhost,IP:127.0.0.1"] }

# A CA that signs with SHA-1, and one below it whose certificate alone is signed so.
ca = Authority.make(cn("Puppet CA: old.lab.test"), 2048, "SHA1")
write("old-ca.pem", ca.cert)
agent = old "old-agent", ca
old "old-small", ca, bits: 1024
old "old-server", ca, extensions: AGENT.merge(names)
key = OpenSSL::PKey::RSA.new(2048)
below = Authority.new(certificate(cn("Puppet CA: below old.lab.test"), key, ca.cert, ca.key, 2, [BEGIN_, END_], AUTHORITY, "SHA1"), key)
write("old-sub-ca.pem", below.cert)
old "old-sub-agent", below, digest: "SHA256"
list = crl(below, 0, [], [BEGIN_, END_]).to_pem
times = [BEGIN_, END_]
File.write(File.join(DIR, "old-crl.pem"), crl(ca, 0, [], times, digest: "SHA1").to_pem + list)
File.write(File.join(DIR, "old-crl-revoked.pem"), crl(ca, 1, [agent.cert.serial], times, digest: "SHA1").to_pem + list)

# A CA whose key has 1024 bits.
small = Authority.make(cn("Puppet CA: small.lab.test"), 1024)
write("small-ca.pem", small.cert)
old "small-agent", small, digest: "SHA256"
old "small-server", small, digest: "SHA256", bits: 1024, extensions: AGENT.merge(names)
write("small-crl.pem", crl(small, 0, [], times))
