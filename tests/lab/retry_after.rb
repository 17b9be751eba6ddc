# What agents do since 7.26 on a 429 or 503 with `Retry-After` (PUP-11853), for the agent of Debian 12 (7.23): they read the
# answer, close the connection, sleep outside of the request, and send it again. 7.23 closes the connection inside of the
# request and fails. Loaded by Ruby's `-r`; `retrying_agent_make` in agents.bash does.

require 'puppet'
require 'puppet/http'

module Lab
  # The agent's own handler reads the field; the client must not act on it by itself.
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

  # The proxy goes by this.
  module Version
    def version
      '7.26.0'
    end
  end
end

Puppet::HTTP::Client.prepend(Lab::RetryAfter)
Puppet.singleton_class.prepend(Lab::Version)
