"""Append-only chat templates for model families whose official template rewrites history.

Each renders the opening messages (and a single finished turn) exactly as the official template does, so that the
model sees what it was trained on, and then only ever appends: an assistant turn stays in the history as it was written.

* Qwen3 drops the thoughts of earlier turns and writes empty ones into the last: ``QWEN3`` does neither. With
  ``enable_thinking=False`` the empty thought block that opens the turn stays where it was put.
* Llama 3.1 and later stamp a date and trim what the assistant wrote: ``LLAMA31`` takes the date as ``date_string``
  and leaves the assistant's text alone.

They can be saved with a trained model (``tokenizer.chat_template = QWEN3``) so that serving renders as training did.
"""

QWEN3 = """\
{%- set opener = '<|im_start|>assistant\\n' %}
{%- if enable_thinking is defined and enable_thinking is false %}
    {%- set opener = opener + '<think>\\n\\n</think>\\n\\n' %}
{%- endif %}
{%- set begins_with_system = messages[0].role == 'system' %}
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if begins_with_system %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- '# Tools\\n\\nYou may call one or more functions to assist with the user query.\\n\\n' }}
    {{- 'You are provided with function signatures within <tools></tools> XML tags:\\n<tools>' }}
    {%- for tool in tools %}{{- '\\n' + tool | tojson }}{%- endfor %}
    {{- '\\n</tools>\\n\\nFor each function call, return a json object with function name and arguments within ' }}
    {{- '<tool_call></tool_call> XML tags:\\n<tool_call>\\n' }}
    {{- '{"name": <function-name>, "arguments": <args-json-object>}\\n</tool_call><|im_end|>\\n' }}
{%- elif begins_with_system %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in (messages[1:] if begins_with_system else messages) %}
    {%- if message.role == 'assistant' %}
        {{- opener }}
        {%- if message.reasoning_content %}
            {{- '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' }}
        {%- endif %}
        {{- message.content }}
        {%- for call in message.tool_calls or [] %}
            {%- if message.content or not loop.first %}{{- '\\n' }}{%- endif %}
            {%- set function = call.function or call %}
            {{- '<tool_call>\\n{"name": "' + function.name + '", "arguments": ' }}
            {{- function.arguments if function.arguments is string else function.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.previtem is not defined or loop.previtem.role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- opener }}{%- endif %}
"""

LLAMA31 = """\
{%- macro header(role) %}{{- '<|start_header_id|>' + role + '<|end_header_id|>\\n\\n' }}{%- endmacro %}
{%- set begins_with_system = messages[0].role == 'system' %}
{{- bos_token + header('system') }}
{%- if tools %}{{- 'Environment: ipython\\n' }}{%- endif %}
{{- 'Cutting Knowledge Date: December 2023\\nToday Date: ' + date_string | default('26 Jul 2024') + '\\n\\n' }}
{%- if begins_with_system %}{{- messages[0].content | trim }}{%- endif %}
{{- '<|eot_id|>' }}
{%- for message in (messages[1:] if begins_with_system else messages) %}
    {%- if message.role in ('tool', 'ipython') %}
        {{- header('ipython') + message.content | tojson }}
    {%- elif message.tool_calls %}
        {%- if message.tool_calls | length != 1 %}
            {{- raise_exception('Llama 3.1 makes one tool call a message; this one has several.') }}
        {%- endif %}
        {%- set function = message.tool_calls[0].function %}
        {{- header('assistant') + '{"name": "' + function.name + '", "parameters": ' }}
        {{- function.arguments | tojson + '}' }}
    {%- else %}
        {{- header(message.role) }}
        {%- if tools and loop.first %}
            {{- 'Given the following functions, please respond with a JSON for a function call ' }}
            {{- 'with its proper arguments that best answers the given prompt.\\n\\n' }}
            {{- 'Respond in the format {"name": function name, "parameters": dictionary of argument name and its ' }}
            {{- 'value}.Do not use variables.\\n\\n' }}
            {%- for tool in tools %}{{- tool | tojson(indent=4) + '\\n\\n' }}{%- endfor %}
        {%- endif %}
        {{- message.content if message.role == 'assistant' else message.content | trim }}
    {%- endif %}
    {{- '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- header('assistant') }}{%- endif %}
"""

STAND_INS = {"Qwen3": QWEN3, "Llama 3.1": LLAMA31}
"""Families the stand-in is offered for when a tokenizer's own template rewrites history."""
