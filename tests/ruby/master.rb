# A Rack application that reads a request's identity like a Puppet master: Puppet 2.7 (Mongrel), 3.8 and 5 (Rack). It returns
# what each version reads from the proxy's headers as JSON.
#
# ruby master.rb SERVER ENVIRONMENT..., where SERVER is puma or webrick, and the environment may set `ssl_client_header`
# and `ssl_client_verify_header` as puppet.conf does. It prints the port that it listens on.

require "json"
require "openssl"
require "stringio"

DN = ENV.fetch("ssl_client_header", "HTTP_X_CLIENT_DN")
VERIFY = ENV.fetch("ssl_client_verify_header", "HTTP_X_CLIENT_VERIFY")

# Mongrel of Puppet 0.25 to 2.7, and Rack of 2.6 and 2.7: everything after the first "CN=" is the name.
def name_by_pattern(subject)
  found = subject && subject.match(/CN\s*=\s*(.*)/)
  found && found[1]
end

# Rack of Puppet 3: OpenSSL reads the subject by RFC 2253, and in its own form if that fails. The first CN is the name.
def name_by_openssl(subject)
  readings = [:parse_rfc2253, :parse_openssl].lazy.map do |form|
    begin
      OpenSSL::X509::Name.public_send(form, subject.to_s)
    rescue OpenSSL::X509::NameError, TypeError
      nil
    end
  end
  name = readings.find { |read| read && !read.to_a.empty? }
  found = name && name.to_a.assoc("CN")
  found && found[1]
end

# Rack of Puppet 4.6 to 5: one line, with spaces in place of line ends.
def certificate(line)
  return nil if line.nil? || line.empty?
  body = line[/-----BEGIN CERTIFICATE-----(.*)-----END CERTIFICATE-----/m, 1]
  pem = "-----BEGIN CERTIFICATE-----\n#{body.to_s.split.join("\n")}\n-----END CERTIFICATE-----\n"
  OpenSSL::X509::Certificate.new(pem).subject.to_s(OpenSSL::X509::Name::RFC2253)
end

APPLICATION = lambda do |env|
  subject = env[DN]
  seen = {
    "pid" => Process.pid,
    "method" => env["REQUEST_METHOD"],
    "path" => env["PATH_INFO"],
    "query" => env["QUERY_STRING"],
    "version" => env["HTTP_VERSION"] || env["SERVER_PROTOCOL"],
    "host" => env["HTTP_HOST"],
    "body" => (env["rack.input"] ? env["rack.input"].read.to_s : "").bytesize,
    "authenticated" => env[VERIFY] == "SUCCESS",
    "verify" => env[VERIFY],
    "subject" => subject,
    "node_2_7" => name_by_pattern(subject),
    "node_3_8" => name_by_openssl(subject),
    "certificate" => certificate(env["HTTP_X_SSL_CLIENT_CERT"]),
    # The address that Mongrel uses as the client's: the last one in the header.
    "ip" => env.fetch("HTTP_X_FORWARDED_FOR", env["REMOTE_ADDR"]).split(",").last.strip,
    "identity_headers" => env.keys.grep(/\AHTTP_X_(CLIENT|SSL)_/).sort,
  }
  body = JSON.generate(seen)
  [200, { "Content-Type" => "application/json", "Content-Length" => body.bytesize.to_s }, [body]]
end

def listening(port)
  $stdout.puts(port)
  $stdout.flush
end

# The test holds the other end of this pipe. When the test exits, so does this process.
Thread.new { $stdin.read; exit!(0) }

case ARGV.fetch(0)
when "puma"
  require "puma"
  server = Puma::Server.new(APPLICATION)
  listening(server.add_tcp_listener("127.0.0.1", 0).addr[1])
  server.run.join
when "webrick"
  require "webrick"
  quiet = WEBrick::Log.new($stderr, WEBrick::Log::FATAL)
  server = WEBrick::HTTPServer.new(BindAddress: "127.0.0.1", Port: 0, Logger: quiet, AccessLog: [])
  # Rack's own adapter moved to another library in Rack 3. This is what it does.
  server.mount_proc("/") do |request, response|
    env = request.meta_vars.merge("rack.input" => StringIO.new(request.body.to_s))
    response.status, headers, body = APPLICATION.call(env)
    headers.each { |name, value| response[name] = value }
    response.body = body.join
  end
  listening(server.listeners[0].addr[1])
  server.start
end
