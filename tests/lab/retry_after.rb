# Gives the agent of Debian 12 (7.23) the retries of 7.26 on a 429 or 503 with `Retry-After` (PUP-11853). Since 7.26 agents read
# the response, close the connection, sleep outside of the request, and send it again. 7.23 closes the connection within the
# request and fails. `retrying_agent_make` in agents.bash loads this file with Ruby's `-r`.

require 'puppet'
require 'puppet/http'

module Lab
  # The code below handles the field, so the HTTP client must not.
  module NoRetryAfter
    def self.retry_after?(_request, _response)
      false
    end
  end

  module RetryAfter
    def initialize(**options)
      super
      @retry_after = @retry_after_handler
      @retry_after_handler = NoRetryAfter
    end

    private

    def execute_streaming(request, options: {}, &block)
      retries = 0
      loop do
        seconds = nil
        response = super(request, options: options) do |answer|
          if @retry_after.retry_after?(request, answer)
            seconds = @retry_after.retry_after_interval(request, answer, retries)
          end
          if seconds
            answer.drain
          elsif block
            block.call(answer)
          else
            answer.body
          end
        end
        return response unless seconds

        close
        retries += 1
        Puppet.warning("Sleeping for #{seconds} seconds before retrying the request")
        sleep(seconds)
      end
    end
  end

  # The proxy decides by the version in the request.
  module Version
    def version
      '7.26.0'
    end
  end
end

Puppet::HTTP::Client.prepend(Lab::RetryAfter)
Puppet.singleton_class.prepend(Lab::Version)
