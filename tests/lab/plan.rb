# Runs a Bolt plan without Bolt, which Debian does not have: Puppet evaluates the plan, and its tasks run on this machine as
# Bolt would run them on their targets. A task sees the name of its target in TARGET.
#   ruby plan.rb MODULES PLAN PARAMETERS-AS-JSON
require 'json'
require 'puppet'
require 'puppet_pal'
require 'tmpdir'

MODULES, PLAN, PARAMETERS = ARGV

# The functions of Bolt that the plan calls. A task that fails on a target fails the plan, or with `_catch_errors` its
# result set has the errors, as in Bolt.
FUNCTIONS = {
  'get_targets' => <<~RUBY,
    Puppet::Functions.create_function(:get_targets) do
      dispatch(:get_targets) { param 'TargetSpec', :names }
      def get_targets(names)
        type = $compiler.type('Target')
        [names].flatten.map { |name| call_function('new', type, { 'host' => name, 'name' => name }) }
      end
    end
  RUBY
  'run_task' => <<~RUBY,
    Puppet::Functions.create_function(:run_task) do
      dispatch(:run_task) { param 'String', :task; param 'Variant[TargetSpec, Target]', :targets; param 'String', :about; param 'Hash', :parameters }
      def run_task(task, targets, about, parameters)
        catch_errors = parameters['_catch_errors']
        parameters = parameters.reject { |key, _| key == '_catch_errors' }
        signature = $compiler.task_signature(task) or raise "there is no task \#{task}"
        signature.runnable_with?(parameters) { |problem| raise problem }
        env = parameters.to_h { |key, value| ["PT_\#{key}", value.to_s] }.merge('PT__task' => task, 'PT__installdir' => MODULES)
        failed = [targets].flatten.reject do |target|
          target = target.host unless target.is_a?(String)
          puts "plan: \#{about} (\#{task} on \#{target})"
          $stdout.flush
          script = File.join(MODULES, 'proscenium/tasks', "\#{task.split('::').last}.sh")
          system(env.merge('TARGET' => target), script)
        end
        errors = call_function('get_targets', failed.map { |target| target.is_a?(String) ? target : target.host }).map do |target|
          error = Puppet::DataTypes::Error.new("\#{task} failed on \#{target.host}")
          make('Result', 'target' => target, 'error' => error)
        end
        raise errors.map { |result| result.error.msg }.join(', ') unless catch_errors || errors.empty?
        error_set = make('ErrorSet', 'results' => errors, 'names' => errors.map { |result| result.target.name })
        make('ResultSet', 'ok' => errors.empty?, 'error_set' => error_set)
      end

      def make(type, attributes) = call_function('new', $compiler.type(type), attributes)
    end
  RUBY
  'fail_plan' => <<~RUBY,
    Puppet::Functions.create_function(:fail_plan) do
      dispatch(:fail_plan) { param 'String', :message; param 'String', :kind; param 'Hash', :details }
      def fail_plan(message, _kind, _details) = raise(message)
    end
  RUBY
}.freeze

Dir.mktmpdir do |dir|
  functions = File.join(dir, 'modules/bolt/lib/puppet/functions')
  FileUtils.mkdir_p(functions)
  FUNCTIONS.each { |name, text| File.write(File.join(functions, "#{name}.rb"), text) }
  Puppet.initialize_settings(['--confdir', dir, '--vardir', dir])
  Puppet[:tasks] = true
  Puppet::Pal.in_tmp_environment('lab', modulepath: [MODULES, File.join(dir, 'modules')], facts: {}) do |pal|
    pal.with_script_compiler do |compiler|
      $compiler = compiler
      compiler.evaluate_string('type Target = Object[{ attributes => { host => String, name => String } }]')
      compiler.evaluate_string('type Result = Object[{ attributes => { target => Target, error => Error } }]')
      compiler.evaluate_string('type ErrorSet = Object[{ attributes => { results => Array[Result], names => Array[String] } }]')
      compiler.evaluate_string('type ResultSet = Object[{ attributes => { ok => Boolean, error_set => ErrorSet } }]')
      compiler.evaluate_string('type TargetSpec = Variant[String, Array[String]]')
      loader = Puppet.lookup(:loaders).private_environment_loader
      plan = loader.load(:plan, PLAN) or abort "there is no plan #{PLAN}"
      scope = Puppet.lookup(:global_scope)
      catch(:return) do
        plan.class.dispatcher.dispatchers.first.call_by_name_with_scope(scope, JSON.parse(PARAMETERS), true)
      end
    end
  end
rescue StandardError => e
  abort "plan: #{e.message}"
end
