# Forms that certificates come in: keys, kinds of string, lengths and characters of names, and CAs that were renewed,
# cross-signed and issued anew. A CA of its own signs them; times are as in odd.rb.
require_relative "lib"

ROOT = Authority.make(cn("Puppet Root CA: forms"), 2048)
@serial = 100

def subordinate(issuer, subject, key, times = [BEGIN_, END_])
  @serial += 1
  extensions = AUTHORITY.merge("authorityKeyIdentifier" => ["keyid:always"])
  Authority.new(certificate(subject, key, issuer.cert, issuer.key, @serial, times, extensions), key)
end

ISSUING = subordinate(ROOT, cn("Puppet CA: forms"), OpenSSL::PKey::RSA.new(2048))
AGENT_KEY = OpenSSL::PKey::RSA.new(2048)

def form(file, subject: cn("#{file}.lab.test"), key: AGENT_KEY, ca: ISSUING)
  @serial += 1
  cert = certificate(subject, key, ca.cert, ca.key, @serial, [BEGIN_, END_], AGENT)
  cert = yield cert if block_given?
  write("#{file}.pem", cert)
  write("#{file}.key", key)
end

def lists(file, *authorities)
  write(file, *authorities.map { |authority| crl(authority, 1, [], [BEGIN_, END_]) })
end

# A certificate's key as RSASSA-PSS would have it, though the key itself is as any other.
def pss_alone(key)
  algorithm = OpenSSL::ASN1::Sequence([OpenSSL::ASN1::ObjectId("RSASSA-PSS")])
  bits = OpenSSL::ASN1::BitString(OpenSSL::ASN1.decode(key.public_to_der).value[1].value)
  OpenSSL::PKey.read(OpenSSL::ASN1::Sequence([algorithm, bits]).to_der)
end

# The same certificate, signed by RSA-PSS: Ruby signs certificates by PKCS #1 alone.
def signed_by_pss(cert)
  null = OpenSSL::ASN1::Null(nil)
  oid = ->(name, *parameters) { OpenSSL::ASN1::Sequence([OpenSSL::ASN1::ObjectId(name), *parameters]) }
  tagged = ->(tag, value) { OpenSSL::ASN1::ASN1Data.new([value], tag, :CONTEXT_SPECIFIC) }
  hash = oid.call("SHA256", null)
  parameters = [hash, oid.call("MGF1", hash), OpenSSL::ASN1::Integer(32)].each_with_index.map { |value, tag| tagged.call(tag, value) }
  algorithm = oid.call("RSASSA-PSS", OpenSSL::ASN1::Sequence(parameters))
  fields = OpenSSL::ASN1.decode(cert.to_der).value.first.value
  fields[2] = algorithm
  signed = OpenSSL::ASN1::Sequence(fields)
  signature = ISSUING.key.sign_pss("SHA256", signed.to_der, salt_length: 32, mgf1_hash: "SHA256")
  SSL::Certificate.new(OpenSSL::ASN1::Sequence([signed, algorithm, OpenSSL::ASN1::BitString(signature)]).to_der)
end

write("forms-ca.pem", ISSUING.cert, ROOT.cert)
lists("forms-crl.pem", ISSUING, ROOT)

form "rsa3072", key: OpenSSL::PKey::RSA.new(3072)
form "rsa8192", key: OpenSSL::PKey::RSA.new(8192)
form("rsa-pss") { |cert| signed_by_pss(cert) }
form("rsa-pss-key") do |cert|
  cert.public_key = pss_alone(AGENT_KEY)
  cert.sign(ISSUING.key, OpenSSL::Digest.new("SHA256"))
end
typed = ->(text, type) { SSL::Name.new([["CN", text, type]]) }
form "t61-cn", subject: typed.call("t61-cn.lab.test", OpenSSL::ASN1::T61STRING)
form "bmp-cn", subject: typed.call("bmp-cn.lab.test".encode("UTF-16BE").b, OpenSSL::ASN1::BMPSTRING)
form "printable-cn", subject: typed.call("printable-cn.lab.test", OpenSSL::ASN1::PRINTABLESTRING)
form "nul-cn", subject: cn("ca.lab.test\0.nul-cn.lab.test")
form "plus-cn", subject: cn("plus+cn.lab.test")
form "quote-cn", subject: cn("quote\"cn.lab.test")
form "blank-cn", subject: cn(" blank-cn.lab.test")
form "star-cn", subject: cn("*.lab.test")
form "multi-rdn", subject: SSL::Name.new.add_entry("CN", "multi-rdn.lab.test").add_entry("O", "x", set: -1)
form "empty-subject", subject: SSL::Name.new
form "long64-cn", subject: cn("#{"a" * 55}.lab.test")
form "long256-cn", subject: cn("#{(["a" * 48] * 5).join(".")}.b.lab.test".rjust(256, "c"))

# The CA renewed: the same name, another key. Both are in the bundle, as agents of both are about.
renewed = subordinate(ROOT, ISSUING.cert.subject, OpenSSL::PKey::RSA.new(2048))
form "renewed-agent", ca: renewed
form "before-renewal"
write("forms-renewed-ca.pem", renewed.cert, ISSUING.cert, ROOT.cert)
lists("forms-renewed-crl.pem", renewed, ISSUING, ROOT)

# The CA's key and name, certified by another root too; agents know nothing of it.
other = Authority.make(cn("Puppet Root CA: other"), 2048)
crossed = subordinate(other, ISSUING.cert.subject, ISSUING.key)
write("forms-cross-ca.pem", crossed.cert, other.cert)
write("forms-both-ca.pem", ISSUING.cert, crossed.cert, other.cert, ROOT.cert)
lists("forms-cross-crl.pem", ISSUING, other)
lists("forms-both-crl.pem", ISSUING, other, ROOT)

# The CA's certificate has ended, and was issued anew over the same key.
ended = subordinate(ROOT, ISSUING.cert.subject, ISSUING.key, PAST)
write("forms-ended-ca.pem", ended.cert, ROOT.cert)
write("forms-reissued-ca.pem", ended.cert, ISSUING.cert, ROOT.cert)
