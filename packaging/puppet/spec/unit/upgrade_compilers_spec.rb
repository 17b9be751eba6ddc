# frozen_string_literal: true

require 'rbconfig'
require 'spec_helper'

# The lab's program evaluates the plan and runs its tasks. The commands that the tasks call are stand-ins, which fail if
# FAILS names them and their target.
describe 'the plan proscenium::upgrade_compilers' do
  around do |example|
    Dir.mktmpdir do |dir|
      @dir = dir
      { 'proscenium' => '$1', 'apt-get' => 'apt-get', 'systemctl' => 'systemctl' }.each do |name, verb|
        File.write(File.join(dir, name), <<~SH, perm: 0o755)
          #!/bin/sh
          if [ "$1" = status ]; then
            echo "  c1.example.com:8140  up  $STATE"
            echo "  c2.example.com:8140  up  ready"
            exit
          fi
          echo "$TARGET #{verb}" >>#{dir}/log
          case " $FAILS " in *" #{verb}@$TARGET "*) exit 1 ;; esac
        SH
      end
      example.run
    end
  end

  # What the plan prints, and what its tasks called.
  def run_plan(fails: '', state: 'ready', **parameters)
    env = { 'PATH' => "#{@dir}:#{ENV.fetch('PATH')}", 'FAILS' => fails, 'STATE' => state }
    parameters = { compilers: %w[c1.example.com c2.example.com], proxies: %w[p1 p2] }.merge(parameters)
    out, @status = Open3.capture2e(env, RbConfig.ruby, File.join(MODULE, '../../tests/lab/plan.rb'), MODULES,
                                   'proscenium::upgrade_compilers', parameters.to_json)
    log = File.join(@dir, 'log')
    [out, File.exist?(log) ? File.readlines(log, chomp: true) : []]
  end

  upgrade = lambda do |host|
    ['p1 drain', 'p2 drain', "#{host} apt-get", "#{host} apt-get", "#{host} systemctl", 'p1 ready', 'p2 ready']
  end

  it 'upgrades one compiler after the other' do
    out, log = run_plan
    expect(@status).to be_success, out
    expect(log).to eq(upgrade.call('c1.example.com') + upgrade.call('c2.example.com'))
  end

  it 'makes a compiler ready on all proxies if one does not drain it' do
    out, log = run_plan(fails: 'drain@p2')
    expect(@status).not_to be_success
    expect(log).to eq(['p1 drain', 'p2 drain', 'p1 ready', 'p2 ready'])
    expect(out).to include('drain failed at c1.example.com', 'c1.example.com is in service on all proxies')
  end

  it 'names the proxies on which it could not undo the drain' do
    out, = run_plan(fails: 'drain@p2 ready@p2')
    expect(out).to include('still drained on p2. When it works, run there: proscenium ready --host c1.example.com')
  end

  it 'says where a compiler is drained if its upgrade fails, and which command ends that' do
    out, log = run_plan(fails: 'apt-get@c1.example.com', socket: '/run/a.sock')
    expect(@status).not_to be_success
    expect(log).to eq(['p1 drain', 'p2 drain', 'c1.example.com apt-get'])
    expect(out).to include('upgrade failed at c1.example.com. c1.example.com: proscenium::upgrade failed on c1',
                           'still drained on p1, p2. When it works, run there: ' \
                           'proscenium ready --socket /run/a.sock --host c1.example.com')
  end

  it 'names only the proxies that did not make a compiler ready' do
    out, = run_plan(fails: 'ready@p1')
    expect(out).to include('ready failed at c1.example.com', 'still drained on p1. When')
  end

  it 'refuses compilers that an operator drained, before it changes anything' do
    out, log = run_plan(state: 'drain')
    expect(@status).not_to be_success
    expect(log).to be_empty
    expect(out).to include('c1.example.com:8140 is up, but its administrative state is drain')
  end

  it 'upgrades drained compilers if it may' do
    out, log = run_plan(state: 'drain', include_drained: true)
    expect(@status).to be_success, out
    expect(log).to eq(upgrade.call('c1.example.com') + upgrade.call('c2.example.com'))
  end
end
