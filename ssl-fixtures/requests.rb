# Certificate requests as an agent makes them, by Puppet's own code: `ruby requests.rb` (needs Puppet's library).
# A request holds no secret: the keys are not kept.
require 'puppet'
require 'puppet/ssl/certificate_request'
require 'puppet/ssl/oids'
require 'tmpdir'

HERE = __dir__

def request(file, name, bits, attributes: {}, extensions: {}, altnames: nil)
  options = { csr_attributes: attributes, extension_requests: extensions }
  options[:dns_alt_names] = altnames if altnames
  request = Puppet::SSL::CertificateRequest.new(name)
  request.generate(OpenSSL::PKey::RSA.new(bits), options)
  File.write(File.join(HERE, "request-#{file}.pem"), request.content.to_pem)
end

Dir.mktmpdir do |dir|
  Puppet.initialize_settings(%w[confdir vardir ssldir].flat_map { |setting| ["--#{setting}", dir] })
  Puppet::SSL::Oids.register_puppet_oids
  request('plain', 'plain.lab.test', 4096)
  request('attributes', 'attributes.lab.test', 2048,
          # The second is what agents of Puppet 8 add by themselves: an attribute, no extension.
          attributes: { 'challengePassword' => 'open sesame', '1.3.6.1.4.1.34380.1.3.2' => 'true' },
          extensions: { 'pp_instance_id' => 'i-0a1b2c', 'pp_uuid' => 'ED803750-E3C7-44F5-BB08-41A04433FE2E',
                        'pp_preshared_key' => '342thbjkt82094y0', 'pp_role' => 'web',
                        '1.3.6.1.4.1.34380.1.2.1.1' => 'private' })
  request('cli-auth', 'cli-auth.lab.test', 2048, extensions: { '1.3.6.1.4.1.34380.1.3.39' => 'true' })
  request('altnames', 'altnames.lab.test', 2048, altnames: 'puppet,puppet.lab.test')
end
