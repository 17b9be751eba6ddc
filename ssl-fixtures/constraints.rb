# Name constraints on e-mail addresses, CAs that certify another key of their own, and agents below them. CAs of their own
# sign them; times are as in odd.rb.
require_relative "lib"

KEY = OpenSSL::PKey::RSA.new(2048)
write("constraints.key", KEY)
@serial = 100

def subordinate(issuer, subject, extensions)
  @serial += 1
  key = OpenSSL::PKey::RSA.new(2048)
  extensions = AUTHORITY.merge("authorityKeyIdentifier" => ["keyid:always"]).merge(extensions)
  Authority.new(certificate(subject, key, issuer.cert, issuer.key, @serial, [BEGIN_, END_], extensions), key)
end

def agent(file, ca, names: "DNS:#{file}.lab.test", extensions: {}, subject: cn("#{file}.lab.test"))
  @serial += 1
  extensions = AGENT.merge(names ? { "subjectAltName" => [names] } : {}).merge(extensions)
  write("#{file}.pem", certificate(subject, KEY, ca.cert, ca.key, @serial, [BEGIN_, END_], extensions))
end

# The CA certificates, issuing one first, and a list of each.
def trusted(prefix, *authorities)
  write("#{prefix}-ca.pem", *authorities.map(&:cert))
  write("#{prefix}-crl.pem", *authorities.map { |authority| crl(authority, 1, [], [BEGIN_, END_]) })
end

def constraints(text) = { "nameConstraints" => [text, true] }
def length(count) = { "basicConstraints" => ["CA:TRUE,pathlen:#{count}", true] }

# A CA with name constraints on e-mail addresses: its agents with an address are refused.
root = Authority.make(cn("Puppet Root CA: constraints"), 2048)
issuing = subordinate(root, cn("Puppet CA: constraints"), constraints("permitted;email:lab.test,excluded;email:admin@lab.test"))
trusted("constraints", issuing, root)
agent "email", issuing, names: "DNS:email.lab.test,email:web@lab.test"
agent "email-subject", issuing, names: nil, subject: name(["emailAddress", "web@LAB.test"], ["CN", "email-subject.lab.test"])
agent "email-subject-elsewhere", issuing, subject: name(["emailAddress", "web@example.org"], ["CN", "email-subject.lab.test"])
agent "constraining-agent", issuing, extensions: constraints("permitted;DNS:lab.test")

# A root for some names alone, which certified another key of its own: that one has a name outside.
key = OpenSSL::PKey::RSA.new(2048)
narrow = cn("Puppet CA: narrow")
extensions = AUTHORITY.merge(constraints("permitted;DNS:lab.test"))
root = Authority.new(certificate(narrow, key, nil, key, 1, [BEGIN_, END_], extensions), key)
again = subordinate(root, narrow, "subjectAltName" => ["DNS:ca.example.org"])
trusted("self-issued", again, root)
agent "self-issued", again
agent "self-issued-elsewhere", again, names: "DNS:web.example.org"

# A CA that allows one CA below it, and certified another key of its own, which does not count as one.
root = Authority.make(cn("Puppet Root CA: short"), 2048)
short = subordinate(root, cn("Puppet CA: short"), length(1))
again = subordinate(short, short.cert.subject, {})
first = subordinate(again, cn("Puppet CA: first below"), {})
second = subordinate(first, cn("Puppet CA: second below"), {})
trusted("path-length", second, first, again, short, root)
agent "path-length", first
agent "path-length-over", second
